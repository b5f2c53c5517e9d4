"""The paper's Table 1 from whatever runs exist: both norms of the oscillation, algorithms by tasks."""

import pandas as pd

from sb3_cpp.analysis.comparison import ordered, tasks_of
from sb3_cpp.analysis.plotting.canvas import short_name
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.results import Results
from sb3_cpp.analysis.tables import markdown_table

CRITERIA = {"oscillation_l2": "||OJ||_2", "oscillation_inf": "||OJ||_inf"}
_LATEX = {"||OJ||_2": r"$\|\mathcal{O}J\|_2$", "||OJ||_inf": r"$\|\mathcal{O}J\|_\infty$"}


def table1(results: Results) -> pd.DataFrame:
    """Means over seeds, in the units of the return, as in the paper; one column per task, NaN where there is no run."""
    runs, tasks = results.used(), tasks_of(results)
    algos = ordered(list(runs.algo))
    styles, rows = styles_for(algos), []
    for measure, criterion in CRITERIA.items():
        for algo in algos:
            means = {
                task: runs.loc[(runs.algo == algo) & (runs.task == task), measure].mean()
                for task in tasks
            }
            rows.append({"Criterion": criterion, "Algorithm": styles[algo].label} | means)
    return pd.DataFrame(rows)


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """As text, each task with the decimals its size calls for."""
    text = table.astype(object).copy()
    for task in table.columns[2:]:
        decimals = next(
            (n for n, least in ((0, 100), (1, 10), (2, 1)) if table[task].max() >= least), 3
        )
        text[task] = ["" if pd.isna(value) else f"{value:.{decimals}f}" for value in table[task]]
    return text.rename(columns={task: short_name(task) for task in table.columns[2:]})


def markdown(table: pd.DataFrame) -> str:
    text = numbers(table)
    return markdown_table(list(text.columns), text.to_numpy().tolist(), 2) + "\n"


def latex(table: pd.DataFrame) -> str:
    """With the rules of the paper; needs the package multirow."""
    text = numbers(table)
    escape = str.maketrans({"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "ζ": r"$\zeta$"})
    lines = [r"\begin{tabular}{|c|c|" + "c|" * (len(text.columns) - 2) + "}", r"\hline"]
    heads = [rf"\texttt{{{name.translate(escape)}}}" for name in text.columns[2:]]
    lines += [" & ".join(["Criterion", "Algorithm", *heads]) + r" \\", r"\hline"]
    for criterion, block in text.groupby("Criterion", sort=False):
        for i, row in enumerate(block.to_numpy().tolist()):
            first = rf"\multirow{{{len(block)}}}{{*}}{{{_LATEX[str(criterion)]}}}" if i == 0 else ""
            lines.append(" & ".join([first, row[1].translate(escape), *row[2:]]) + r" \\")
        lines.append(r"\hline")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def table1_files(results: Results) -> dict[str, str]:
    """The same table as CSV, Markdown and LaTeX, by file name."""
    table = table1(results)
    return {
        "table1.csv": table.to_csv(index=False),
        "table1.md": markdown(table),
        "table1.tex": latex(table),
    }
