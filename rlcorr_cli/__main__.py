"""`python -m rlcorr_cli` is `rlcorr`."""

from rlcorr_cli.cli.door import main

if __name__ == "__main__":
    main()
