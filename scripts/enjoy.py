"""The command `sb3-cpp enjoy`."""

from sb3_cpp.cli import main

if __name__ == "__main__":
    main("enjoy")
