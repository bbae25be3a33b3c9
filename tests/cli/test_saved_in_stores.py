"""Reports, totals, plans, rules and baselines in an object store: named wherever one on the disk is."""

import json
from pathlib import Path

import pytest
from running import BF16, STEPS, refused, run
from stores import Proxy, get, put, server, store as store

PLAN = 'name = "mine"\n[weighting]\nscope = "token"\nhigh = 2.0\n'
RULES = 'defaults = false\n[[rule]]\nmetric = "kl"\nmax = 1e-9\n'


def saved(dump: str, name: str) -> str:
    """The URI of what `analyze -o` writes into the store."""
    uri = f"s3://dumps/saved/{name}"
    ran = run("analyze", dump, "-o", uri)
    assert ran.status == 0, ran.err
    return uri


@pytest.mark.parametrize("suffix", [".json", ".rlcorr"])
def test_check_and_plot_take_a_saved_report(suffix: str, store: Proxy, tmp_path: Path) -> None:
    uri, here = saved(BF16, f"r{suffix}"), tmp_path / f"r{suffix}"
    here.write_bytes(get(server(), f"saved/r{suffix}"))
    there = run("check", uri)
    assert (there.status, there.out) == (run("check", str(here)).status, run("check", str(here)).out)
    for name, report in (("there", uri), ("here", str(here))):
        assert run("plot", report, "--kind", "ratio", "-o", str(tmp_path / f"{name}.svg")).status == 0
    assert (tmp_path / "there.svg").read_bytes() == (tmp_path / "here.svg").read_bytes()


@pytest.mark.parametrize("suffix", [".json", ".rlcorr"])
def test_a_baseline_may_be_in_a_store(suffix: str, store: Proxy) -> None:
    uri = saved(BF16, f"baseline{suffix}")
    assert run("check", BF16, "--baseline", uri, "--max-increase", "k3_kl=0").status == 0
    ran = run("check", STEPS, "--baseline", uri, "--max-increase", "k3_kl=0", "--json")
    assert ran.status == 1, ran.err
    assert "at most 0 above the baseline" in ran.out


def test_a_baseline_in_a_store_is_written_and_updated(store: Proxy) -> None:
    uri = "s3://dumps/saved/nightly.json"
    for is_first in (True, False):
        ran = run("check", BF16, "--baseline", uri, "--update-baseline", "--json")
        assert (ran.status, ran.json["baseline"]["is_first"]) == (0, is_first), ran.err
    assert json.loads(get(server(), "saved/nightly.json")) == run("analyze", BF16, "--json").json


def test_merge_takes_uris_and_globs_of_them(store: Proxy, tmp_path: Path) -> None:
    uris = [saved(dump, f"parts/{name}.rlcorr") for name, dump in (("a", BF16), ("b", STEPS))]
    for name in ("a", "b"):
        (tmp_path / f"{name}.rlcorr").write_bytes(get(server(), f"saved/parts/{name}.rlcorr"))
    here = run("analyze", *(str(tmp_path / f"{name}.rlcorr") for name in "ab"), "--allow-overlap", "--json").json
    for parts in (uris, ["s3://dumps/saved/parts/*.rlcorr"], [str(tmp_path / "*.rlcorr")]):
        there = run("analyze", *parts, "--allow-overlap", "--json").json
        assert {**there, "rlcorr": None, "notes": None} == {**here, "rlcorr": None, "notes": None}, parts
    refused(run("analyze", uris[0], uris[0]), 2, "is named twice")
    refused(run("analyze", *uris, "--allow-overlap", "-o", uris[0]), 2, f"{uris[0]} is part of the dump")
    refused(run("analyze", "s3://dumps/saved/parts/*.json"), 3, "matches no file")


def test_diff_takes_totals(store: Proxy, tmp_path: Path) -> None:
    uris = [saved(dump, f"diffed/{name}.rlcorr") for name, dump in (("a", BF16), ("b", STEPS))]
    for name in ("a", "b"):
        (tmp_path / f"{name}.rlcorr").write_bytes(get(server(), f"saved/diffed/{name}.rlcorr"))
    there, here = (
        run("diff", *uris, "--json"),
        run("diff", *(str(tmp_path / f"{name}.rlcorr") for name in "ab"), "--json"),
    )
    assert there.json == here.json


def test_plans_and_rules_may_be_in_a_store(store: Proxy, tmp_path: Path) -> None:
    plan, rules = put(server(), "saved/plan.toml", PLAN), put(server(), "saved/rules.toml", RULES)
    (tmp_path / "plan.toml").write_text(PLAN)
    there, here = (run("analyze", BF16, "--plan", name, "--json").json for name in (plan, str(tmp_path / "plan.toml")))
    assert there["metrics"] == here["metrics"]
    assert there["plan"]["name"] == "mine"
    assert "mine" in run("compare", BF16, "--plan", plan, "--preset", "geo_rs").out
    assert run("check", BF16, "--rules", rules).status == 1
    refused(run("filter", BF16, "--plan", plan, "-o", plan.replace("toml", "jsonl") + "/../plan.toml"), 2)


def test_what_a_query_says_of_the_store_holds_for_them_too(store: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, report = put(server(), "saved/plan.yaml", "name: mine\n"), saved(BF16, "query.rlcorr")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    query = f"?region=us-east-1&scheme=http&endpoint_override={store.endpoint.removeprefix('http://')}"
    assert run("analyze", BF16, "--plan", plan + query, "--json").json["plan"]["name"] == "mine"
    assert run("check", report + query, "--max", "kl=100").status in (0, 1)
    assert run("analyze", report + query).status == 0


MISSING = {
    "plan": (("analyze", BF16, "--plan", "s3://dumps/saved/no.toml"), 2, "Cannot read the plan file"),
    "rules": (("check", BF16, "--rules", "s3://dumps/saved/no.toml"), 2, "Cannot read the rules file"),
    "baseline": (
        ("check", BF16, "--baseline", "s3://dumps/saved/no.json", "--max-increase", "kl=1"),
        3,
        "cannot be read as a report",
    ),
    "part": (("analyze", "s3://dumps/saved/no.rlcorr"), 3, "cannot be read as saved totals"),
    "report": (("check", "s3://dumps/saved/no.json"), 3, ""),
}


@pytest.mark.parametrize("what", MISSING)
def test_one_that_is_not_there_is_said_with_where_was_looked(what: str, store: Proxy) -> None:
    args, status, words = MISSING[what]
    ran = run(*args)
    refused(ran, status, words, "there is no such key (bucket 'dumps', key 'saved/no.", store.endpoint)
    assert ran.err.count("s3://dumps/saved/no.") == 1


def test_an_object_beyond_the_limit_is_not_read(store: Proxy) -> None:
    plan = put(server(), "saved/large.yaml", "#" * ((1 << 20) + 1))
    refused(run("analyze", BF16, "--plan", plan), 2, "it is larger than 1,048,576 bytes")
