"""What the pages of results say first, and what stands beside each other on a wide screen."""

import re
from pathlib import Path

import pytest

from rlcorr_cli import analyze, check, compare, diagnose, diff, filter, inspect, sweep, to_html, watch
from rlcorr_cli.show.report import to_do

SAMPLES = Path(__file__).parents[2] / "sample_data"
MISPAIRED = str(Path(__file__).parents[1] / "diagnosis" / "causes" / "mispaired_5pct.parquet")
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
    assert page.count("or drop far sequences") == 1
    assert "The last, step 11: far apart" in page


def test_small_tables_of_a_diagnosis_stand_in_columns() -> None:
    columns = to_html(diagnose(COLLAPSE)).split('<div class="columns">')[1].split("What was read")[0]
    assert re.findall(r"<h2>(.*?)</h2>", columns) == ["By step", "By length", "By surprise", "By place in the response"]


def test_the_page_of_a_filtered_dump_names_the_cause_that_training_lives_with() -> None:
    assert "Likely cause: stale rollouts" in to_html(filter(STEPS, preset="token_is", dry_run=True))


def test_a_mean_of_counts_keeps_its_decimals_and_a_count_has_none() -> None:
    page = to_html(analyze(STEPS, preset="seq_is_rs")).replace("<wbr>", "")
    row = r"%s</th>\s*<td[^>]*>([^<]*)</td>"
    shown = {name: re.search(row % name, page) for name in ("length_mean", "kept_length_mean", "kept_tokens")}
    assert [match and match[1] for match in shown.values()] == ["85.83", "84.98", "13,597"]


def test_three_dumps_explain_their_intervals_once() -> None:
    page = to_html(diff(*(str(SAMPLES / f"smollm2_{name}.parquet") for name in ("fp32", "bf16", "int8"))))
    assert page.count("Each interval is for one metric") == 1


def test_a_prompt_that_is_all_on_its_line_is_not_folded() -> None:
    page = to_html(inspect(STEPS, row="s4-s005"))
    assert page.count("What is 17 times 24? Think step by step.") == 1


@pytest.fixture(scope="module")
def collapse() -> str:
    """The page of a run whose last steps break rules that fail."""
    return to_html(analyze(COLLAPSE, pictures=True))


def test_an_effective_sample_size_of_few_sequences_is_said_to_be_rough(collapse: str) -> None:
    assert "It is rough in 4 of 12 groups (dotted), where fewer than 10 sequences are effective." in collapse


def test_a_headline_is_red_where_steps_break_rules_that_fail(collapse: str) -> None:
    assert re.findall('class="verdict ([a-z]*)"', collapse) == ["fail"]


def test_a_curve_has_the_limits_that_it_reaches(collapse: str) -> None:
    assert ">limit 0.1<" in drawing(collapse, "KL divergence")
    assert ">limit" not in drawing(to_html(analyze(STEPS, pictures=True)), "KL divergence")


def drawing(page: str, title: str) -> str:
    """One picture of a page."""
    return page.split(f'aria-label="{title}"')[1].split("</svg>")[0]


def test_bounds_far_apart_have_a_logarithmic_axis_with_plain_numbers() -> None:
    curve = drawing(to_html(sweep(STEPS, vary="is.high", is_="token:,2")), "What bounds on token weights keep")
    assert re.findall(r">(1|3|10|30)<", curve) == ["1", "3", "10", "30"]
    assert "mathdefault" not in curve


def test_the_picture_of_a_dump_with_a_fault_recommends_no_plan() -> None:
    page = to_html(compare(MISPAIRED))
    assert "decoupled_token_icepop (orange) is the least harmful. decoupled_token_is is worth the most" in page
    assert "Use decoupled" not in page


def test_a_column_that_holds_nothing_is_left_out(tmp_path: Path) -> None:
    watched = watch(STEPS, once=True, every=0, state=tmp_path / "watch.rlcorr")
    headings = re.findall(r'<th scope="col".*?><button type="button">(.*?)</button>', to_html(watched))
    assert "k3_kl" in headings
    assert "kept" not in headings  # the plan rejects nothing
