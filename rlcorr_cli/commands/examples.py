"""EXAMPLES: two commands that run, with which each command's help ends."""

EXAMPLES: dict[str, tuple[str, str]] = {
    "analyze": (
        "rlcorr analyze dump.parquet --group-by step",
        "rlcorr analyze dump.parquet --preset token_is --objective ppo -o report.html",
    ),
    "diagnose": (
        "rlcorr diagnose dump.parquet",
        "rlcorr diagnose dump.parquet --by group_id --fail-on top_p -o why.html",
    ),
    "compare": (
        "rlcorr compare dump.parquet",
        "rlcorr compare dump.parquet --preset token_is --preset geo_rs --group-by step",
    ),
    "sweep": (
        "rlcorr sweep dump.parquet --rs ratio.seq_mean --target-keep 0.95",
        "rlcorr sweep dump.parquet --is sequence --bound high --target-ess 0.5",
    ),
    "filter": (
        "rlcorr filter dump.parquet --preset token_is --dry-run",
        "rlcorr filter dump.parquet --preset seq_is_rs -o corrected.parquet",
    ),
    "plot": (
        "rlcorr plot dump.parquet",
        "rlcorr plot dump.parquet --kind surprise --kind ratio -o pictures/",
    ),
    "check": (
        "rlcorr check dump.parquet --max k3_kl=0.05 --min token_ess=0.5",
        "rlcorr check dump.parquet --fail-on anomaly --junit rlcorr.xml",
    ),
    "inspect": (
        "rlcorr inspect dump.parquet",
        "rlcorr inspect dump.parquet --worst 5 --by abs_log_ratio",
    ),
    "convert": (
        "rlcorr convert dump.parquet -o canonical.parquet",
        "rlcorr convert dump.parquet -o canonical.jsonl --limit 100",
    ),
    "diff": (
        "rlcorr diff old.parquet new.parquet",
        "rlcorr diff bf16.parquet fp8.parquet int8.parquet --fail-on moved -o diff.png",
    ),
    "merge": (
        "rlcorr merge part1.rlcorr part2.rlcorr -o report.html",
        "rlcorr merge run.rlcorr today.rlcorr --group-by step -o new.rlcorr",
    ),
    "presets": ("rlcorr presets trl", "rlcorr presets geo_rs"),
    "explain": ("rlcorr explain seq_ess", "rlcorr explain metrics"),
    "help": ("rlcorr help", "rlcorr help corrections"),
}


def epilog(command: str) -> str:
    """The examples as the last paragraph of a command's help, a line each."""
    return "\n".join(("Examples:", *EXAMPLES[command]))
