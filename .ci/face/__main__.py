"""`python -m rlcorr`: the command line."""

from rlcorr_cli.commands.main import main

if __name__ == "__main__":
    main()
