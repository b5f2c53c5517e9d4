"""The command `sb3-cpp results`."""

from sb3_cpp.cli import main

if __name__ == "__main__":
    main("results")
