"""`python -m twophase` is the `twophase` command."""

from twophase.cli.entry import main

if __name__ == "__main__":
    main()
