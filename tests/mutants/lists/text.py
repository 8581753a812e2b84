"""Faults of models of text: their data, pieces of words, held-out windows, networks and sampled softmax."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/sim/workload/training/text/"
TASKS, SAMPLED, NETWORKS = T + "test_tasks.py", T + "test_sampled.py", T + "test_networks.py"
ROWS, TEXT = T + "test_rows.py", T + "test_text.py"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/workload/training/data/text.py",
        [TEXT],
        [
            ("rare tokens have the first numbers", "(-counts[token], token)", "(counts[token], token)"),
            ("the vocabulary has one word too many", "[: vocabulary - 1]", "[:vocabulary]"),
        ],
    ),
    *faults(
        "sim/workload/training/data/wordpiece.py",
        [TEXT],
        [
            ("the rest of a word may begin one", '"##" if start else ""', '"" if start else ""'),
            ("what a word loses is not subtracted", "frequency[old] -= times", "frequency[old] -= 0"),
            (
                "a damaged vocabulary is used",
                "if hashlib.sha256(content.encode()).hexdigest() != digest:",
                "if not digest:",
            ),
        ],
    ),
    *faults(
        "sim/workload/training/tasks/windows.py",
        [TASKS],
        [
            ("workers draw what is tested", "np.flatnonzero(~is_tested)", "np.arange(count)"),
            (
                "each seed tests another text",
                'keyed(0, "held-out text")',
                'keyed(settings.seed, "held-out text")',
            ),
            ("one page of text is tested", "[: -(-pages // HELD_OUT)]", "[:1]"),
        ],
    ),
    *faults(
        "sim/workload/training/tasks/language.py",
        [TASKS],
        [
            ("a token is to be predicted from itself", "windows[:, 1:]", "windows[:, :-1]"),
        ],
    ),
    *faults(
        "sim/workload/training/loop/metrics.py",
        [TASKS],
        [
            ("perplexity is of base 2", "math.exp(loss)", "2**loss"),
            ("no number is a good perplexity", "math.inf if math.isnan(loss)", "0.0 if math.isnan(loss)"),
        ],
    ),
    *faults(
        "sim/workload/training/tasks/questions.py",
        [TASKS],
        [
            ("the end of an answer is past it", "size + 1 + start + size", "size + 2 + start + size"),
            ("one right place is enough", "== answers).all(1)", "== answers).any(1)"),
        ],
    ),
    *faults(
        "sim/workload/training/tasks/sampled.py",
        [SAMPLED],
        [
            ("draws are counted from 0", "int(first[count - 1]) + 1", "int(first[count - 1])"),
            ("the first word is never sampled", "log1ps(1 / (words + 1.0))", "log1ps(1 / (words + 2.0))"),
        ],
    ),
    *faults(
        "sim/workload/training/networks/lstm.py",
        [NETWORKS],
        [
            (
                "a sample that is the right word counts",
                "classes[count:] == classes[:count, None]",
                "classes[count:] < 0",
            ),
            ("expected counts are added", ".squeeze(1) - log_counts", ".squeeze(1) + log_counts"),
        ],
    ),
    *faults(
        "sim/workload/training/networks/attention.py",
        [NETWORKS],
        [
            ("a place does not see itself", ".triu(1)", ".triu(0)"),
            ("scores are not scaled", " / math.sqrt(queries.shape[-1])", ""),
        ],
    ),
    *faults(
        "sim/workload/training/models/text/lstm.py",
        [ROWS],
        [
            ("samples are not among the rows", "words + self.samples)", "words)"),
        ],
    ),
]
