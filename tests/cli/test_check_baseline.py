"""`check --baseline`: a change fails where it is larger than its limit and than chance."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from running import BF16, SAMPLE, run

from rlcorr_cli.api import analyze, check

INT8 = str(SAMPLE / "smollm2_int8.parquet")


def test_halves_of_one_dump_are_not_worse_than_each_other() -> None:
    """Whatever metric is limited; of 2 in 20 a change is beyond its interval by chance."""
    table, drawn, failed, warned = pq.read_table(BF16), np.random.default_rng(1), Counter[str](), Counter[str]()
    for _ in range(12):
        rows = drawn.permutation(64)
        now, then = (analyze(table.take(sorted(half))) for half in (rows[:32], rows[32:]))
        limits = {name: "10%" for name, value in now.whole.values.items() if value is not None}
        found = check(now, baseline=then, max_increase=limits, max_decrease=limits).findings
        failed.update(one.metric for one in found if one.status == "fail")
        warned.update(one.metric for one in found if one.status == "warn" and "baseline" in one.rule)
    assert max(failed.values(), default=0) <= 1
    assert warned["seq_ess"] > 6
    assert not warned["k3_kl"]


def test_a_change_of_the_rollout_engine_fails() -> None:
    then = analyze(BF16)
    found = check(INT8, baseline=then, max_increase={"k3_kl": "20%", "kl": "20%"}, max_decrease={"token_ess": 0.001})
    assert [one.status for one in found.findings if "baseline" in one.rule] == ["fail", "ok", "fail"]


def test_equal_policies_are_a_baseline_without_chance(tmp_path: Path) -> None:
    table = pq.read_table(BF16)
    place = table.column_names.index("old_log_probs")
    equal = analyze(table.set_column(place, "old_log_probs", table["rollout_log_probs"]))
    assert equal.whole.values["k3_kl"] == 0
    (found,) = [
        one for one in check(BF16, baseline=equal, max_increase={"k3_kl": 0.0}).findings if "baseline" in one.rule
    ]
    assert found.status == "fail"


def test_a_metric_without_an_interval_warns_and_names_another(tmp_path: Path) -> None:
    then = tmp_path / "then.json"
    then.write_text(run("analyze", BF16, "--json").out)
    ran = run("check", INT8, "--baseline", str(then), "--max-decrease", "seq_ess=10%", "--json")
    assert ran.status == 0
    (found,) = [one for one in json.loads(ran.out)["findings"] if "baseline" in one["rule"]]
    assert (found["status"], round(found["min"], 4)) == ("warn", 0.6361)
    assert found["remedy"] == "seq_ess has no interval here: limit k3_kl instead (--max-increase k3_kl=20%)."
