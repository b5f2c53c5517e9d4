"""The command `sb3-cpp benchmark`."""

from sb3_cpp.cli import main

if __name__ == "__main__":
    main("benchmark")
