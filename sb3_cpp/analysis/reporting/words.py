"""What the words of a report mean."""

WORDS = (
    ("final return", "Mean of the last 3 evaluations of a run."),
    (
        "final training return",
        "Mean return of the last 100 training episodes, exploration included.",
    ),
    (
        "‖OJ‖₂, ‖OJ‖∞",
        "Oscillation of the curve of evaluations: over the points at which it falls, the root of the sum of the squared "
        "falls, and the largest fall (Zhu et al., Cautious Policy Programming). A run that learns nothing oscillates little: "
        "read it beside the return.",
    ),
    (
        "‖OJ‖₂ of noise",
        "The oscillation that a policy of constant return would show, only because an evaluation is the mean of few episodes. "
        "Oscillation that hardly exceeds it says nothing about the policy.",
    ),
    (
        "‖OJ‖₂ in training",
        "The same norm of the curve of the last 100 training episodes, at 50 even steps: smoother, less noisy.",
    ),
    (
        "area under curve",
        "Mean height of the curve of evaluations over training: learning speed, in units of the return.",
    ),
    (
        "normalised",
        "In units of the task's range, from the lowest to the highest evaluation of all compared runs on the task.",
    ),
    ("IQM", "Interquartile mean: the mean of the middle half of the runs, tasks counting equally."),
    (
        "95 % interval",
        "Stratified bootstrap over the runs of each task, widened for few runs by Student's quantile; it holds the truth in "
        "94 to 97 % of simulated cases with 3 to 20 runs.",
    ),
    (
        "P(A better)",
        "Probability that a run of A beats one of the other algorithm on the same task, averaged over tasks.",
    ),
    (
        "p",
        "Two-sided; Holm's correction for the number of comparisons where it says so. Stars: * 0.05, ** 0.01, *** 0.001.",
    ),
    ("human-normalised", "0 is the random agent's score, 1 the human tester's."),
)
