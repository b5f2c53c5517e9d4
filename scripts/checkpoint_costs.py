"""What checkpoints cost in time and bytes: python scripts/checkpoint_costs.py --steps 100000 --frames 0"""

from sb3_cpp.cli import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="checkpoint_costs.py",
        description="The share of checkpoints in the time of a MinAtar run, and what is written of a frame buffer when some "
        "frames are new. A million frames need 8 GB of memory and 16 GB of disk for a while.",
    )
    parser.add_argument("--steps", type=int, default=100_000, help="of the MinAtar run; 0 for none")
    parser.add_argument("--save-freq", type=int, default=10_000, help="steps between checkpoints")
    parser.add_argument(
        "--frames", type=int, default=1_000_000, help="of the frame buffer; 0 for none"
    )
    parser.add_argument(
        "--new-frames", type=int, default=10_000, help="frames between two checkpoints of it"
    )
    parser.add_argument(
        "-f",
        "--folder",
        help="where to write for a while (without it: the system's temporary folder)",
    )
    args = parser.parse_args()

    from sb3_cpp.benchmarks.checkpoint_costs import checkpoint_costs

    return checkpoint_costs(args.steps, args.save_freq, args.frames, args.new_frames, args.folder)


if __name__ == "__main__":
    run_command(main)
