"""Every fault of the scripts that came before has a test with the right result.

The faults were found by running metaseq's scripts (facebookresearch/metaseq at f7ffa5f) and fairscale 0.4.13:

RF  scripts/reshard_fsdp.py           RM  scripts/reshard_mp.py
RC  scripts/reshard_consolidated.py   CU  checkpoint_utils.py, merging and splitting on load
ST  distributed/stitch_fsdp_ckpt.py   FS  fairscale's own consolidate_shard_weights
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ELEMENTS = "test_every_shard_has_its_elements_and_its_padding"
WHOLE = "test_merged_and_unflattened_is_the_truth_and_so_is_the_way_back"
DTYPE = "test_dtype_casts_weights_and_leaves_integers_and_moments"
MISSING = "test_missing_files_are_named"
ONE_FILE = "test_one_file_may_be_named_with_or_without_a_folder"
UNKNOWN = "test_names_that_are_not_known_are_refused_never_dropped"
KEPT = "test_a_tensor_that_metadata_does_not_name_is_kept_when_the_rest_is_flattened"
PARTS = "test_model_parts_are_never_joined_as_shards"

FAULTS = {
    "RF 1: the second name of a tie is missing": ["test_a_tie_is_one_tensor_under_two_names", WHOLE],
    "RF 2: moments keep their padding when merged": [ELEMENTS],
    "RF 3: moments begin at another element than weights": [ELEMENTS],
    "RF 4: 10 elements, 4 to 5: AssertionError": [ELEMENTS],
    "RF 5: 10 elements, 4 to 1 to 4: right by luck": [ELEMENTS],
    "RF 6: 9 elements, 4 to 1 to 2: moments of 6": [ELEMENTS],
    "RF 7: ranks that are padding altogether: AssertionError": [ELEMENTS],
    "RF 8: what fairscale wrote itself: AssertionError": [
        ELEMENTS,
        "test_there_and_back_are_the_files_that_fairscale_wrote",
    ],
    "RF 9: a unit without parameters: UnboundLocalError": [
        "test_a_unit_without_parameters_comes_first_and_nothing_happens"
    ],
    "RF 10: a buffer that no file holds: ValueError": [
        "test_a_buffer_that_is_listed_and_absent_is_skipped",
        WHOLE,
    ],
    "RF 11: a dtype and an optimizer: AttributeError": [DTYPE, "test_moments_are_cast_where_that_is_asked"],
    "RF 12: integers become inf": [DTYPE],
    "RF 13: copies of experts are concatenated": ["test_experts_are_held_whole_by_every_shard"],
    "RF 14: a placeholder for the state: TypeError": ["test_a_placeholder_means_that_shard_0_has_the_state"],
    "RF 15: a shard without optimizer: KeyError": ["test_a_shard_without_optimizer_is_named"],
    "RF 16: a missing middle shard, silently": [MISSING],
    "RF 17: a missing first shard, silently": [MISSING],
    "RF 18: two model parts joined, silently": [PARTS],
    "RF 19: two steps mixed, silently": ["test_two_steps_in_one_folder_are_told_apart"],
    "RF 20: order by every number in the path": ["test_the_number_in_a_folder_s_name_does_not_count"],
    "RF 21: a stray copy is included": ["test_a_stray_file_is_not_a_shard"],
    "RF 22: EMA is shard 0's piece": ["test_ema_is_cut_like_the_model"],
    "RF 23: weights unflattened, moments flat": [
        "test_flat_moments_beside_unflattened_weights_are_refused",
        WHOLE,
    ],
    "RF 24: what is not per element is concatenated": [
        "test_what_is_not_one_element_for_an_element_is_taken_once"
    ],
    "RF 25: a state that one rank lacks is dropped": ["test_a_state_that_one_shard_lacks_is_named"],
    "RF 26: a key that nothing names is dropped": [
        "test_a_key_that_the_metadata_does_not_name_is_kept_with_a_warning"
    ],
    "RF 27: a record's keys in another order: TypeError": [
        "test_the_order_of_a_record_s_keys_does_not_count"
    ],
    "RF 28: metadata of fairscale 0.3.7: KeyError": [
        "test_metadata_of_fairscale_0_3_7_is_read_and_written",
        "test_the_form_of_0_3_7_by_hand",
    ],
    "RF 29: no metadata: KeyError": ["test_flat_tensors_without_metadata_are_refused_with_the_reason"],
    "RF 30: the default unflattens two outputs: ValueError": [
        ONE_FILE,
        "test_several_files_are_not_written_into_one",
    ],
    "RF 31: a file without a folder: FileNotFoundError": [ONE_FILE],
    "RF 32: two outputs into one file": ["test_several_files_are_not_written_into_one"],
    "RF 33: braces in a path: KeyError": [ONE_FILE],
    "RF 34: old shards stay beside new ones": ["test_a_source_is_never_written_over"],
    "RF 35: a class that is not installed: UnpicklingError": ["test_what_can_t_be_imported_comes_along"],
    "RF 36: a stale configuration": ["test_the_configuration_tells_the_truth"],
    "RM 1: a gate, and any unknown name, is dropped": [UNKNOWN, WHOLE],
    "RM 2: flat parts become an empty model": [
        "test_flat_tensors_without_metadata_are_refused_with_the_reason",
        WHOLE,
    ],
    "RM 3: a tied projection has rank 0's rows": ["test_a_tied_projection_is_as_long_as_the_vocabulary"],
    "RM 4: a tensor without dimensions: IndexError": [
        "test_a_tensor_without_dimensions_is_a_copy_whatever_its_name"
    ],
    "RM 5: no configuration, or a dict: AttributeError": [
        "test_a_file_without_configuration_is_merged_all_the_same"
    ],
    "RM 6: one of three sizes is updated": ["test_the_configuration_tells_the_truth"],
    "RM 7: parts of unequal size": ["test_sizes_that_can_t_be_divided_are_refused"],
    "RM 8: copies that differ: rank 0's": [
        "test_copies_that_differ_are_refused_unless_the_first_is_asked_for"
    ],
    "RM 9: optimizer, criterion, task_state dropped, metadata stale": [
        "test_criterion_task_state_and_the_rest_come_along",
        "test_moments_are_divided_like_their_parameter",
        "test_metadata_fits_the_parts_that_it_lies_beside",
    ],
    "RM 10: adapters are joined by a part of their name": [UNKNOWN],
    "RC 1: ranks that are padding altogether: AssertionError": [ELEMENTS],
    "RC 2: the whole optimizer in every shard": [KEPT],
    "RC 3: weights that metadata does not name are dropped": [KEPT],
    "CU 1: 5 elements, 4 to 1: cut by the last padding alone": [ELEMENTS],
    "CU 2: merging what is padded: NotImplementedError": [ELEMENTS],
    "CU 3: split files copy another's padding": [ELEMENTS, "test_there_and_back_is_where_we_were"],
    "CU 4: sizes from padded lengths: 10 elements, 4 to 5": [
        ELEMENTS,
        "test_shards_cut_by_a_padded_length_are_refused",
    ],
    "ST 1: part-1 is part-10, too": [PARTS],
    "ST 2: the optimizer is dropped": ["test_moments_are_divided_like_their_parameter"],
    "FS 1: only the last unit's ties": ["test_the_merged_model_is_what_was_trained", WHOLE],
}
"""Fault -> tests that have the right result."""


@pytest.fixture(scope="module")
def tests() -> set[str]:
    here = Path(__file__).parent
    files = [*here.glob("test_*.py"), *(here.parent / "formats" / "metaseq").glob("test_*.py")]
    return {
        node.name
        for f in files
        for node in ast.walk(ast.parse(f.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_tests(fault, tests):
    assert FAULTS[fault]
    assert set(FAULTS[fault]) <= tests


def test_no_number_is_left_out():
    numbers = {s: [int(f.split()[1][:-1]) for f in FAULTS if f.startswith(s)] for s in ("RF", "RM")}
    assert numbers == {"RF": list(range(1, 37)), "RM": list(range(1, 11))}
