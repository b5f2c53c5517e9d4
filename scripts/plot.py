"""The command `sb3-cpp plot`."""

from sb3_cpp.cli import main

if __name__ == "__main__":
    main("plot")
