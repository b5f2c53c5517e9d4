"""The command `sb3-cpp demo`."""

from sb3_cpp.cli import main

if __name__ == "__main__":
    main("demo")
