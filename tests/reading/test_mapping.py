import pytest

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.columns import ALIASES, AMBIGUOUS, Roles, candidates, check_names, key_column, resolve
from rlcorr_cli.reading.request import PlanColumns

PAIR = ["rollout_log_probs", "old_log_probs"]


def test_no_name_stands_for_two_canonical_columns() -> None:
    names = [alias for aliases in ALIASES.values() for alias in aliases] + list(ALIASES)
    assert len(names) == len(set(names))
    assert not set(names) & {name for guesses in AMBIGUOUS.values() for name in guesses}


def test_aliases_are_found_and_exact_names_win_over_them() -> None:
    assert resolve(["generation_logprobs", "prev_logprobs"], {}, PlanColumns(mode="decoupled")) == {
        "rollout_log_probs": "generation_logprobs",
        "old_log_probs": "prev_logprobs",
    }
    assert resolve([*PAIR, "prev_logprobs", "loss_mask", "score"], {}, PlanColumns(mode="decoupled")) == {
        "rollout_log_probs": "rollout_log_probs",
        "old_log_probs": "old_log_probs",
        "response_mask": "loss_mask",
        "reward": "score",
    }


def test_two_aliases_without_an_exact_name_are_ambiguous() -> None:
    with pytest.raises(DataError, match=r"prev_logprobs and old_logprobs could each be old_log_probs") as caught:
        resolve(["rollout_log_probs", "old_logprobs", "prev_logprobs"], {}, PlanColumns(mode="decoupled"))
    assert "--map old_log_probs=old_logprobs" in caught.value.hint


def test_two_masks_are_ambiguous_unless_one_is_named() -> None:
    masks = [*PAIR, "response_mask", "loss_mask"]
    with pytest.raises(DataError, match=r"response_mask and loss_mask"):
        resolve(masks, {}, PlanColumns(mode="decoupled"))
    for mask in masks[2:]:
        assert resolve(masks, {"response_mask": mask}, PlanColumns(mode="decoupled"))["response_mask"] == mask


def test_a_lone_current_policy_is_taken_for_the_old_one() -> None:
    columns = resolve(["inference_logprobs", "trainer_logprobs"], {}, PlanColumns(mode="decoupled"))
    assert columns == {"rollout_log_probs": "inference_logprobs", "old_log_probs": "trainer_logprobs"}
    roles = Roles.of(columns)
    assert (roles.train, roles.current) == ("trainer_logprobs", None)


def test_a_current_policy_beside_the_old_one_is_kept_apart() -> None:
    roles = Roles.of(resolve([*PAIR, "current_log_probs"], {}, PlanColumns(mode="decoupled")))
    assert (roles.train, roles.current) == ("old_log_probs", "current_log_probs")


def test_bypass_trains_against_the_current_policy() -> None:
    columns = resolve([*PAIR, "trainer_logprobs"], {}, PlanColumns(mode="bypass"))
    assert columns == {"rollout_log_probs": "rollout_log_probs", "current_log_probs": "trainer_logprobs"}
    assert Roles.of(columns).train == "trainer_logprobs"
    with pytest.raises(DataError, match=r"no column for current_log_probs") as caught:
        resolve(PAIR, {}, PlanColumns(mode="bypass"))
    assert "--mode decoupled" in caught.value.hint


def test_a_missing_column_suggests_the_ambiguous_name_and_lists_few_others() -> None:
    many = [f"c{i}" for i in range(40)]
    with pytest.raises(DataError, match=r"no column for old_log_probs") as caught:
        resolve(["rollout_log_probs", *many, "log_probs"], {}, PlanColumns(mode="decoupled"))
    assert "--map old_log_probs=log_probs" in caught.value.hint
    assert caught.value.message.endswith("c13, ….")
    with pytest.raises(DataError) as caught:
        resolve(["rolout_logprob", "old_log_probs"], {}, PlanColumns(mode="decoupled"))
    assert "--map rollout_log_probs=COLUMN; nearest: rolout_logprob" in caught.value.hint


def test_an_override_beats_every_guess_and_frees_no_column_twice() -> None:
    names = ["inference_logprobs", "trainer_logprobs", "old_log_probs"]
    assert resolve(names, {"old_log_probs": "trainer_logprobs"}, PlanColumns(mode="decoupled")) == {
        "rollout_log_probs": "inference_logprobs",
        "old_log_probs": "trainer_logprobs",
    }
    with pytest.raises(DataError, match=r"no column for old_log_probs"):
        resolve(PAIR, {"rollout_log_probs": "old_log_probs"}, PlanColumns(mode="decoupled"))


def test_overrides_that_cannot_be_followed_are_usage_errors() -> None:
    with pytest.raises(UsageError, match=r"no column 'old_logprob'") as caught:
        resolve(PAIR, {"old_log_probs": "old_logprob"}, PlanColumns(mode="decoupled"))
    assert "old_log_probs" in caught.value.hint
    with pytest.raises(UsageError, match=r"--map: unknown name 'old'") as caught:
        check_names({"old": "trained"})
    assert "response_mask" in caught.value.hint
    with pytest.raises(UsageError, match=r"--map old=old_log_probs is the wrong way round") as caught:
        check_names({"old": "old_log_probs"})
    assert caught.value.hint == "Write --map old_log_probs=old."
    with pytest.raises(UsageError, match=r"to both"):
        check_names({"old_log_probs": "x", "rollout_log_probs": "x"})


def test_keys_are_canonical_or_the_dumps_own() -> None:
    assert key_column("step", ["global_steps", "uid"], {}) == "global_steps"
    assert key_column("step", ["global_steps", "iteration"], {"step": "iteration"}) == "iteration"
    assert key_column("global_steps", ["global_steps"], {"step": "global_steps"}) == "global_steps"
    with pytest.raises(DataError, match=r"could each be step"):
        key_column("step", ["global_steps", "iteration"], {})
    with pytest.raises(DataError, match=r"no column 'uids'") as caught:
        key_column("uids", ["global_steps", "uid"], {})
    assert "uid" in caught.value.hint
    assert candidates("step", ["uid"], {}) == []


@pytest.mark.parametrize(
    ("available", "hint"),
    [
        (["rollout_log_probs", "step"], "if none holds it, the trainer did not write its log-probs."),
        (["rollout_log_probs", "ref_log_probs"], "if none holds it, the trainer did not write its log-probs."),
        (["rollout_log_probs", "old_logps"], "nearest: old_logps."),
        (["rollout_log_probs", *(f"note{i}" for i in range(40))], "if none holds it"),
        (["rollout_log_probs", *(f"old_log_probs_{i}" for i in range(40))], "nearest: old_log_probs_"),
    ],
)
def test_at_most_a_few_near_columns_are_suggested_and_none_of_another_part(available: list[str], hint: str) -> None:
    with pytest.raises(DataError) as caught:
        resolve(available, {}, PlanColumns(mode="decoupled"))
    assert caught.value.hint.startswith("Name it with --map old_log_probs=COLUMN; ")
    assert hint in caught.value.hint
    assert "rollout_log_probs" not in caught.value.hint
    assert caught.value.hint.count(",") <= 2
