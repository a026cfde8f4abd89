"""Random workflows of nine scientific families, with the structure and figures published of them.

Montage, CyberShake, Epigenomics, Inspiral and SIPHT: Bharathi et al. 2008 and Juve et al. 2013, with the
figures of the Pegasus project's generators. 1000Genome, BLAST, Seismology and SRASearch: WfCommons (Coleman
et al. 2022), instances named at each. Times are those of one core; sizes are decimal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

import numpy as np

from envs.simulation.workflows.errors import WorkflowError
from envs.simulation.workflows.model import File, Profile, Stage, Step, Workflow

MB = 1e-3
"""In GB."""
KB = 1e-6
LEAST_SHARE = 0.05
"""No step takes less than this share of its kind's mean."""


class _Draft:
    """A workflow in the making; each step writes one file, which carries its name."""

    def __init__(self, random: np.random.Generator, at: tuple[str, ...]) -> None:
        self._random = random
        self._at = at
        self.files: list[File] = []
        self.steps: list[Step] = []

    def given(self, name: str, gb: float) -> str:
        """A file that lies there from the start."""
        self.files.append(File(name, gb, self._at))
        return name

    def add(self, kind: str, mean_s: float, deviation_s: float, gb: float, reads: Iterable[str]) -> str:
        """A step on one executor; gives the name of the file that it writes."""
        name = f"{kind}-{len(self.steps)}"
        seconds = max(LEAST_SHARE * mean_s, float(self._random.normal(mean_s, deviation_s)))
        self.files.append(File(name, gb))
        self.steps.append(Step(name, Profile((Stage(1, seconds),), executors=1), tuple(reads), (name,)))
        return name

    def count(self, mean: int) -> int:
        """A number around a mean, at least 2."""
        return max(2, int(self._random.integers(round(0.8 * mean), round(1.2 * mean) + 1)))


def _montage(draft: _Draft, steps: int) -> None:
    # 2 n + n differences of neighbours and others + 6
    n = draft.count(max(2, (steps - 6) // 6))
    projected = [
        draft.add("mProjectPP", 13.59, 0.24, 8.32 * MB, [draft.given(f"2mass-{k}", 4.22 * MB)])
        for k in range(n)
    ]
    # Images overlap with those near by: four differences for each.
    near = [(a, b) for a, b in combinations(range(n), 2) if b - a <= 4]
    fits = [draft.add("mDiffFit", 10.59, 0.1, 0.28 * MB, [projected[a], projected[b]]) for a, b in near]
    table = draft.add("mConcatFit", 0.08 * len(fits), 0.0, 0.2 * KB * len(fits), fits)
    model = draft.add("mBgModel", 0.13 * len(fits), 0.0, 0.05 * KB * n, [table])
    flat = [draft.add("mBackground", 10.74, 0.17, 8.32 * MB, [model, image]) for image in projected]
    index = draft.add("mImgTbl", 0.37, 0.1, 0.35 * KB * n, flat)
    mosaic = draft.add("mAdd", 30.11, 0.22, 173.5 * MB, [index, *flat])
    small = draft.add("mShrink", 12.21, 0.0, 6.94 * MB, [mosaic])
    draft.add("mJPEG", 12.6, 1.0, 1.0 * MB, [small])


def _cybershake(draft: _Draft, steps: int) -> None:
    seismograms, peaks = [], []
    each = max(2, (steps - 4) // 4)
    for k in range(2):
        strain = draft.given(f"sgt-{k}", 19.96)
        extracted = draft.add("ExtractSGT", 137.45, 206.0, 463.4 * MB, [strain])
        for _ in range(draft.count(each)):
            seismograms.append(draft.add("SeismogramSynthesis", 43.40, 31.0, 24 * KB, [extracted]))
            peaks.append(draft.add("PeakValCalcOkaya", 1.09, 1.93, 0.216 * KB, [seismograms[-1]]))
    draft.add("ZipSeis", 265.73, 0.0, 4 * KB * len(seismograms), seismograms)
    draft.add("ZipPSA", 195.80, 0.0, 0.036 * KB * len(peaks), peaks)


def _epigenomics(draft: _Draft, steps: int) -> None:
    lanes = 2
    each = max(2, (steps - 3 - 2 * lanes) // (4 * lanes))
    merged = []
    for lane in range(lanes):
        mb = 351.0
        read = draft.add("fastqSplit", mb / 7.66, 10.0, mb * MB, [draft.given(f"lane-{lane}", mb * MB)])
        mapped = []
        chunks = draft.count(each)
        for _ in range(chunks):
            part = mb / chunks
            clean = draft.add("filterContams", part / 8.47, 0.5, part / 2 * MB, [read])
            sanger = draft.add("sol2sanger", part / 2 / 15.07, 0.2, part / 2 / 1.32 * MB, [clean])
            packed = part / 2 / 1.32 / 4.24
            binary = draft.add("fast2bfq", part / 2 / 1.32 / 6.80, 0.2, packed * MB, [sanger])
            mapped.append(draft.add("map", packed / 0.3696, 0.3 * packed, 0.92 * packed * MB, [binary]))
        merged.append(draft.add("mapMerge", 11.01, 3.0, 15.0 * MB, mapped))
    last = draft.add("mapMerge", 11.01, 3.0, 30.0 * MB, merged)
    index = draft.add("maqIndex", 43.57, 5.0, 107.0 * MB, [last])
    draft.add("pileup", 55.95, 5.0, 84.0 * MB, [index])


def _inspiral(draft: _Draft, steps: int) -> None:
    groups = 3
    each = max(2, steps // (4 * groups))
    for group in range(groups):
        data = [draft.given(f"gwf-{group}-{k}", 46.8 * MB) for k in range(draft.count(each))]
        banks = [draft.add("TmpltBank", 18.14, 0.42, 0.987 * MB, [one]) for one in data]
        first = [
            draft.add("Inspiral", 460.21, 545.0, 0.313 * MB, pair) for pair in zip(banks, data, strict=True)
        ]
        both = draft.add("Thinca", 5.37, 0.24, 34 * KB, first)
        triggers = [draft.add("TrigBank", 5.11, 0.32, 13 * KB, [both]) for _ in data]
        second = [
            draft.add("Inspiral", 460.21, 545.0, 0.313 * MB, pair)
            for pair in zip(triggers, data, strict=True)
        ]
        draft.add("Thinca", 5.37, 0.24, 34 * KB, second)


def _sipht(draft: _Draft, steps: int) -> None:
    for k in range(max(1, round(steps / 31))):
        genome = draft.given(f"genome-{k}", 5.25 * MB)
        sites = [draft.add("Patser", 1.27, 0.33, 92 * KB, [genome]) for _ in range(draft.count(18))]
        known = draft.add("Patser_concate", 0.08, 0.1, 0.57 * MB, sites)
        found = [
            draft.add("Findterm", 1349.47, 796.0, 36.0 * MB, [genome]),
            draft.add("RNAMotif", 36.42, 8.84, 1.05 * MB, [genome]),
            draft.add("Transterm", 55.78, 48.0, 0.44 * MB, [genome]),
            draft.add("Blast", 2350.58, 1016.0, 5.56 * MB, [genome]),
        ]
        candidates = draft.add("SRNA", 361.33, 342.0, 5.9 * MB, found)
        parsed = draft.add("FFN_parse", 1.64, 0.24, 0.8 * MB, [candidates])
        described = [
            draft.add("Blast_candidate", 5.18, 1.0, 3 * KB, [candidates]),
            draft.add("Blast_QRNA", 1412.09, 98.5, 4.3 * MB, [candidates]),
            draft.add("Blast_synteny", 33.0, 0.0, 1.15 * MB, [candidates, parsed]),
            draft.add("Blast_paralogues", 4.99, 1.15, 0.69 * MB, [candidates]),
        ]
        draft.add("SRNA_annotate", 1.68, 0.96, 0.57 * MB, [candidates, known, *described])


def _genome(draft: _Draft, steps: int) -> None:
    """1000genome-chameleon-2ch-250k-001; seven populations."""
    chromosomes = max(1, round(steps / 41))
    for c in range(chromosomes):
        variants, sites = draft.given(f"vcf-{c}", 2.54), draft.given(f"annotation-{c}", 0.268)
        parts = [draft.add("individuals", 55.0, 1.7, 28 * KB, [variants]) for _ in range(draft.count(25))]
        merged = draft.add("individuals_merge", 94.3, 3.0, 25 * KB, parts)
        sifted = draft.add("sifting", 2.4, 0.2, 356 * KB, [sites])
        for _ in range(7):
            draft.add("mutation_overlap", 5.0, 2.8, 145 * KB, [merged, sifted])
            draft.add("frequency", 98.0, 6.6, 271 * KB, [merged, sifted])


def _blast(draft: _Draft, steps: int) -> None:
    """blast-chameleon-small-001."""
    sequences = draft.add("split_fasta", 1.0, 0.1, 2.0 * MB, [draft.given("fasta", 2.0 * MB)])
    database = draft.given("nt", 1.0)
    found = [
        draft.add("blastall", 9.6, 0.3, 31 * KB, [sequences, database])
        for _ in range(draft.count(max(2, steps - 3)))
    ]
    draft.add("cat_blast", 1.0, 0.1, 31 * KB * len(found), found)
    draft.add("cat", 1.0, 0.1, 1 * KB, found)


def _srasearch(draft: _Draft, steps: int) -> None:
    """srasearch-chameleon-10a-001."""
    reference = draft.add("bowtie2-build", 6.35, 0.5, 20 * KB, [draft.given("reference", 5 * KB)])
    aligned = []
    for _ in range(draft.count(max(2, (steps - 2) // 2))):
        reads = draft.add("fasterq-dump", 644.6, 188.0, 1.16, [])
        aligned.append(draft.add("bowtie2", 54.4, 15.0, 0.34 * KB, [reference, reads]))
    draft.add("merge", 1.0, 0.1, 2.4 * KB, aligned)


def _seismology(draft: _Draft, steps: int) -> None:
    """seismology-chameleon-100p-001."""
    functions = [
        draft.add("sG1IterDecon", 0.72, 0.33, 5 * KB, [draft.given(f"pair-{k}", 9 * KB)])
        for k in range(draft.count(max(2, steps - 1)))
    ]
    draft.add("siftSTFByMisfit", 0.089, 0.0, 0.1 * MB, functions)


FAMILIES: dict[str, Callable[[_Draft, int], None]] = {
    "montage": _montage,
    "cybershake": _cybershake,
    "epigenomics": _epigenomics,
    "inspiral": _inspiral,
    "sipht": _sipht,
    "1000genome": _genome,
    "blast": _blast,
    "srasearch": _srasearch,
    "seismology": _seismology,
}


def family_workflow(name: str, steps: int, random: np.random.Generator, at: tuple[str, ...]) -> Workflow:
    """A random workflow of a family.

    Args:
        name: one of FAMILIES.
        steps: about how many.
        random: what is drawn from.
        at: the clusters at which all inputs lie.

    Raises:
        WorkflowError: for another name.
    """
    if name not in FAMILIES:
        raise WorkflowError(f"there is no family {name!r}: use {', '.join(FAMILIES)}")
    draft = _Draft(random, at)
    FAMILIES[name](draft, steps)
    return Workflow(name, tuple(draft.files), tuple(draft.steps))
