"""`python -m rlcorr_cli` is `rlcorr`."""

from rlcorr_cli.commands.main import main

if __name__ == "__main__":
    main()
