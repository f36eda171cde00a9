"""The list of mutations fits the code: `make mutants` can apply each of them, and its tests exist."""

from tests.mutants.mutation_list import faults_of, load
from tests.support.paths import ROOT


def test_every_mutation_can_be_applied_and_its_tests_exist() -> None:
    mutations = load()
    assert len(mutations) >= 120
    assert faults_of(mutations, ROOT) == []
