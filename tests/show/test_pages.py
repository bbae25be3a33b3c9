"""What the pages of results say first, and what stands beside each other on a wide screen."""

import re
from pathlib import Path

from rlcorr_cli import analyze, check, diagnose, filter, to_html
from rlcorr_cli.show.report import to_do

SAMPLES = Path(__file__).parents[2] / "sample_data"
COLLAPSE, STEPS = str(SAMPLES / "collapse.parquet"), str(SAMPLES / "smollm2_steps.parquet")


def test_what_to_do_begins_with_what_fails_and_has_one_remedy_for_a_metric() -> None:
    todo = to_do(analyze(STEPS, preset="seq_is_rs"))
    statuses = [status for status, *_ in todo]
    assert statuses == sorted(statuses, key=lambda status: status != "fail")
    (of_step,) = (fix for _, finding, fix in todo if finding.startswith("rollout_is_mean 1.24e+07 at step 4"))
    assert of_step == "should be between 0.5 and 2. Steps 2 to 4 break it."


def test_the_page_of_a_check_says_what_to_do_once_for_all_steps() -> None:
    page = to_html(check(COLLAPSE))
    assert "steps 10 and 11: k3_kl is 0.131 to 0.233, should be &lt;= 0.1." in page
    assert page.count("Do not use sequence weights on this data") == 1
    assert "The last, step 11: far apart" in page


def test_small_tables_of_a_diagnosis_stand_in_columns() -> None:
    columns = to_html(diagnose(COLLAPSE)).split('<div class="columns">')[1].split("What was read")[0]
    assert re.findall(r"<h2>(.*?)</h2>", columns) == ["By step", "By length", "By surprise", "By place in the response"]


def test_the_page_of_a_filtered_dump_names_the_cause_that_training_lives_with() -> None:
    assert "Likely cause: stale rollouts" in to_html(filter(STEPS, preset="token_is", dry_run=True))


def test_an_effective_sample_size_of_few_sequences_is_said_to_be_rough() -> None:
    page = to_html(analyze(COLLAPSE, pictures=True))
    assert "It is rough in 4 of 12 groups (dotted), where fewer than 10 sequences are effective." in page
