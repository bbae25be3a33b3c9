"""Which Arrow types can play which part."""

import pyarrow as pa
import pyarrow.types as is_

LOG_PROBS = "a list of floats per row"
MASK = "a list of 0/1 or booleans per row"
REWARD = "one number per row"
ADVANTAGES = "one number per row, or a list of numbers per row"
KEY = "one value per row, such as a number, a string or a date"


def holds_log_probs(type: pa.DataType) -> bool:
    """A list, of whatever layout, of float16, 32 or 64."""
    return is_list(type) and is_.is_floating(type.value_type)


def holds_mask(type: pa.DataType) -> bool:
    """A list of booleans, integers or floats; that they are 0 and 1 is checked as they are read."""
    return is_list(type) and holds_reward(type.value_type)


def holds_reward(type: pa.DataType) -> bool:
    """A number or a boolean; null where every row so far is."""
    return any(test(type) for test in (is_.is_integer, is_.is_floating, is_.is_boolean, is_.is_null))


def holds_advantages(type: pa.DataType) -> bool:
    """A number, or a list of numbers."""
    item = type.value_type if is_list(type) else type
    return holds_reward(item) and not is_.is_boolean(item)


def holds_token_ids(type: pa.DataType) -> bool:
    """A list of whole numbers, or of doubles, as which JSON lines are read."""
    return is_list(type) and (is_.is_integer(type.value_type) or is_.is_float64(type.value_type))


def holds_key(type: pa.DataType) -> bool:
    """Whatever is one value: no list, no map, no object, no months and days at once."""
    if is_.is_dictionary(type) or is_.is_run_end_encoded(type):
        return holds_key(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        return holds_key(type.storage_type)
    return not (is_.is_nested(type) or is_.is_interval(type))


def is_nested_list(type: pa.DataType) -> bool:
    """A list of lists, as some frameworks write for a batch of one."""
    return is_list(type) and is_list(type.value_type)


def is_list(type: pa.DataType) -> bool:
    """A list of whatever layout."""
    views = is_.is_list_view(type) or is_.is_large_list_view(type)
    return views or is_.is_list(type) or is_.is_large_list(type) or is_.is_fixed_size_list(type)
