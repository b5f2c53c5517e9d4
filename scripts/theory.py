"""The theory as a certificate: every coefficient rule on random MDPs, each update held against its guarantee.

Exit code 0 if everything guaranteed held and the noisy case fell, 1 if not, 2 for a wrong argument.
"""

from sb3_cpp.studies.certificate import CertificateSettings, run_certificate
from sb3_cpp.training.command_line import CommandLine, run_command

FLAGS = {
    "updates": "updates per rule, at least",
    "seed": "seed of the random MDPs and of the noise",
    "iterations": "updates of one MDP",
}


def main() -> int:
    parser = CommandLine(description=__doc__)
    parser.add_settings(CertificateSettings, FLAGS)
    parser.add_output("runs/theory/updates_<updates>_seed_<seed>")
    args = vars(parser.parse_args())
    force, out = args.pop("force"), args.pop("out", None)
    settings = CertificateSettings(**args)
    return run_certificate(
        settings, out or f"runs/theory/updates_{settings.updates}_seed_{settings.seed}", force
    )


if __name__ == "__main__":
    run_command(main)
