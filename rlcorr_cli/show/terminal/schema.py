"""`explain --schema`: the JSON Schema of every output, its metrics described by their definitions."""

import json
from pathlib import Path
from typing import Any

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.show.stdout import emit


def print_schema(name: str | None) -> None:
    """The JSON Schema of every output, or of the one named."""
    document = schema()
    outputs = [output["$ref"].removeprefix("#/$defs/") for output in document["anyOf"]]
    if name is not None:
        if name not in outputs:
            raise UsageError(f"There is no output '{name}' with a schema.", f"Nearest: {nearest(name, outputs)}.")
        del document["anyOf"]
        document["$ref"] = f"#/$defs/{name}"
    emit(json.dumps(document, indent=2) + "\n")


def schema() -> dict[str, Any]:
    """results/schema.json with a description of every metric that has a fixed name.

    The descriptions restrict nothing: a metric is there or not as the plan and the dump have it.
    """
    text = (Path(__file__).parents[2] / "results" / "schema.json").read_text(encoding="utf-8")
    document = json.loads(text)
    metrics = document["$defs"]["metrics"]
    metrics["properties"] = {
        row.name: {"description": f"{row.meaning} {row.formula}; {row.unit}.", **metrics["additionalProperties"]}
        for row in DEFINITIONS.values()
    }
    return document
