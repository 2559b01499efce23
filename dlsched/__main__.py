"""`python -m dlsched`: the same as the command `dlsched`."""

from dlsched.cli.main import run

if __name__ == "__main__":
    run()
