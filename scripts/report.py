"""The command `sb3-cpp report`."""

from sb3_cpp.cli import main

if __name__ == "__main__":
    main("report")
