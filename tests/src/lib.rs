//! What every backend must do, written once.
//!
//! [`conformance!`] makes a test of every case for one backend; the CPU, the emulated kernels and a CUDA card are
//! instantiated in a few lines each. Answers are compared with a reference in float64 under a bound that follows from
//! the depth of the sums ([`mod@reference`]), or with `==` where the numbers are small integers that half holds exactly.
//! Outputs start as NaN, and padding must be zero afterwards.

pub mod additive;
pub mod attention;
pub mod attention_heads;
pub mod batches;
pub mod bit_products;
pub mod bit_sums;
pub mod bits;
pub mod blocks;
pub mod borrowed;
pub mod checkpoint;
pub mod coding;
pub mod communities;
pub mod construct;
pub mod contracts;
pub mod coo;
pub mod dot_attention;
pub mod dropouts;
pub mod elementwise;
pub mod frdc;
pub mod graphs;
pub mod hardware;
pub mod input;
pub mod long_rows;
pub mod loss;
pub mod losses;
pub mod matmul;
pub mod maximum;
pub mod messages;
pub mod metrics;
pub mod neighbors;
pub mod normalize;
pub mod norms;
pub mod once;
pub mod optimizer;
pub mod pieces;
pub mod properties;
pub mod quantized;
pub mod ranks;
pub mod readout;
pub mod recording;
pub mod reductions;
pub mod reference;
pub mod sampling;
pub mod sddmm;
pub mod sddmm_combine;
pub mod sddmm_values;
pub mod second_levels;
pub mod segment;
pub mod shadow;
pub mod sharing;
pub mod skip;
pub mod sort;
pub mod spmm;
pub mod spmm_algebra;
pub mod spmm_heads;
pub mod spmm_values;
pub mod spmv;
pub mod stored;
pub mod strides;
pub mod subgraph;
pub mod task;
pub mod tasks;
pub mod toy;
pub mod training;
pub mod type_batches;
pub mod types;

/// How large a suite's cases may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// For the emulator: seconds.
    Small,
    /// For the CPU and for cards.
    Full,
}

impl Scale {
    /// One of two sizes.
    pub fn pick<T>(self, small: T, full: T) -> T {
        match self {
            Scale::Small => small,
            Scale::Full => full,
        }
    }
}

/// Makes a test of every case of the conformance suite.
///
/// `$open` is a function that gives a backend, or something that dereferences to one, in an `Option`; where it is
/// `None` there is no device, which the function has said, and nothing is tested. `tests/cpu/main.rs` has a whole instance.
#[macro_export]
macro_rules! conformance {
    ($open:expr, $scale:expr) => {
        $crate::conformance! { @cases $open, $scale;
            spmm: every_graph, rows_and_columns, every_feature_length, edge_weights, column_factors, epilogues,
                rows_that_cross_boundaries, edges_per_warp, packed_lanes, slices, hybrid, vertex_parallel, atomic_writes, maxima;
            spmm_values: integers_are_exact, hubs_average_to_one, sums_that_leave_half, factors_that_underflow,
                empty_rows_are_zero, infinities_stay_in_their_rows, zero_weights_are_edges, subnormals_are_kept,
                padding_stays_zero;
            long_rows: integers_are_exact, maxima, means_repeat, quantized;
            spmm_heads: planes_of_edge_features, attention, attention_pairs, misfits_are_refused;
            type_batches: samples_follow_the_cpu, neighbors_are_as_likely, full_batches_are_the_whole_graph, ranks_train_on_batches, wrong_batches_are_refused;
            spmm_algebra: adjoint, permutations_commute, linear, repeatable;
            coo: sums_are_those_of_starts, rows_without_edges, what_wants_more_makes_it, dot_products, divisions, misfits_are_refused,
                rows_that_are_drawn_again_are_refused;
            spmv: integers_are_exact, sums_are_close_and_repeat, adjoint, infinities_stay_in_their_rows, misfits_are_refused;
            sddmm: every_graph, rows_and_columns, rows_that_cross_boundaries, every_number_of_edges, every_feature_length, heads, factors, partitions,
                misfits_are_refused;
            sddmm_combine: every_operator, misfits_are_refused;
            sddmm_values: integers_are_exact, infinities_stay_in_their_edges, subnormals_are_kept, symmetric,
                adjoint_of_spmm, repeatable;
            segment: sums_and_maxima, sums_are_close_and_repeat, nan_stays_in_its_row, softmax_statistics,
                softmax_of_extremes, misfits_are_refused;
            attention: fused, fused_between, unfused, masks_are_known, repeatable, softmax_of_extremes, weights_sum_to_one, misfits_are_refused;
            additive: every_graph, every_width, extremes_stay_where_they_are, repeatable, misfits_are_refused;
            dot_attention: every_graph, every_width, dropout, extremes, nan_stays_in_its_rows, repeatable, misfits_are_refused;
            messages: every_graph, every_width, every_message, extremes, nan_stays_in_its_rows, repeatable, misfits_are_refused;
            reductions: every_graph, every_width, every_reduction, equal_messages, deviations_at_the_bound, extremes, nan_stays_in_its_rows, repeatable, misfits_are_refused;
            shadow: exponentials, softmax_of_rows, sums_and_means, every_shape, misfits_are_refused;
            attention_heads: scores, dots, dots_in_one_pass, fewer_destinations, gradients_of_scores, padding_stays_zero, means, misfits_are_refused;
            matmul: every_shape, integers_are_exact, epilogues, beside_the_product, of_a_normalized_operand, of_two_pairs,
                nan_passes_through_relu, repeatable, padding_stays_zero;
            elementwise: dropout_follows_the_counter, dropout_follows_its_random_state, masks_are_known, bias_and_relu, in_place_is_out_of_place, sums_of_two, rows_that_are_picked, gradients,
                column_sums, products, padding_stays_zero;
            loss: cross_entropy_and_gradient, extreme_logits, counts;
            losses: weighted_cross_entropy, weights_of_rows, losses_of_elements, torchs_numbers, far_logits, outcomes, misfits_are_refused;
            metrics: errors, errors_stay_where_they_are, ranks, ranks_of_extremes, scores_of_pairs, misfits_are_refused;
            tasks: of_vertices, of_links;
            types: steps_follow_the_cpu, rows_that_are_learnt_have_gradients, memory_is_estimated_to_the_byte, misfits_are_refused;
            sampling: pairs_follow_the_counter, misfits_are_refused;
            neighbors: samples_follow_the_counter, first_edges_are_sums, all_samples_are_as_likely, batches_are_blocks, batches_lie_in_the_same_memory, sources_are_all_vertices, edges_lie_in_the_memory_of_the_host, the_host_draws_as_the_device_does, rows_are_taken,
                misfits_are_refused;
            batches: batches_of_ranks_are_those_of_one, ranks_learn_batches_alike, ranks_agree_on_messages_of_batches, ranks_store_activations_of_batches, ranks_agree_on_overflows_of_batches, batches_in_place_are_recorded, batches_are_drawn_ahead, whole_neighbourhoods_are_the_graph, subgraphs_of_all_are_the_graph, subgraphs_of_all_are_the_graph_to_bits, bits_are_normalised_over_all_vertices, a_run_goes_on_between_batches,
                features_of_the_host_are_those_of_the_device, features_on_disk_are_those_of_the_device, features_of_ranks_are_those_of_the_device, misfits_are_refused;
            subgraph: walks_follow_the_counter, frontiers_follow_the_counter, all_are_as_likely, subgraphs_are_induced, draws_are_counted_together, edges_have_their_norms,
                self_loops_are_taken_and_not_walked,
                sums_are_the_graphs_in_the_mean, values_are_taken, misfits_are_refused;
            readout: pygs_numbers, pygs_norms, batches_are_graphs, misfits_are_refused;
            normalize: statistics_follow_float64, overflows_leave_the_running_statistics, output_and_gradients,
                weighted_sums, dots, shapes_are_checked;
            maximum: of_matrices, of_groups, nan_stays_in_its_column, misfits_are_refused;
            norms: rows_follow_float64, groups_follow_float64, misfits_are_refused;
            optimizer: rules_follow_float64, gradients_are_clipped, bits_are_those_of_the_cpu, overflow_skips_a_step, overflows_are_found_in_every_column,
                the_loss_scale_follows;
            contracts: shapes_are_checked, values_are_checked, policies_are_checked, memory_is_counted;
            ranks: steps_are_those_of_one, coded_steps_are_those_of_one, codes_are_exchanged, all_rows_are_exchanged, products_are_exchanged, stored_steps_are_those_of_one, overflows_of_stored_are_of_all_ranks, parts_are_put_together, dropped_edges_are_refused, rows_are_dropped_by_their_numbers, halves_of_a_normalization_are_the_whole;
            pieces: passes_are_those_of_the_whole, trainers_are_evaluated, misfits_are_refused;
            recording: recorded_steps_are_the_same_steps, schedules_and_clipping_reach_recorded_steps, a_changed_model_is_recorded_anew,
                a_changed_model_is_evaluated_anew, fills_are_recorded, recorded_memory_stays, what_cannot_be_recorded_is_refused;
            dropouts: layers_draw_apart, attention_draws_apart;
            blocks: whole_neighbourhoods_are_the_graph, running_statistics_evaluate_blocks,
                gradients_are_differences_of_the_loss, batches_are_trained_on, overflows_leave_nothing_behind, misfits_are_refused;
            checkpoint: a_resumed_run_is_the_same_run, another_model_is_refused;
            bits: signs_of_elements, signs_of_what_is_normalized, operands_of_every_type, misfits_are_refused;
            bit_sums: every_graph, rows_of_every_length, sums_of_some_rows, every_width, factors_of_columns;
            bit_products: every_shape, products_that_are_added, products_that_are_summed_up;
            frdc: every_graph, every_width, misfits_are_refused;
            coding: products, normalizations, misfits_are_refused;
            quantized: rows_are_rounded_by_their_numbers, codes_follow_the_contract, scales_follow_the_largest, every_graph, every_feature_length, every_weight, pairs_of_sums, epilogues, largest_batches,
                scales_are_multiplied, misfits_are_refused;
            stored: positive_stays_positive, numbers_of_codes, products, masks, misfits_are_refused;
            strides: gathered_rows_may_be_apart, products_are_written_apart, products_are_written_to_some_rows, products_read_first_rows, dots_take_both_strides_or_none, misfits_are_refused;
            sort: every_length, order_of_equal_keys_stays, pairs_are_grouped, exclusive_sums, misfits_are_refused;
            communities: rounds_follow_the_contract, planted_communities_are_found, devices_agree, misfits_are_refused;
            construct: coo_becomes_the_hosts_graph, csr_becomes_the_hosts_graph, transposes, renamed_graphs_are_the_hosts, sums_are_the_same,
                rows_and_offsets, degrees_make_factors, misfits_are_refused;
            second_levels: split_products, moments_of_many_ctas, losses_of_many_ctas, column_sums_of_many_ctas,
                empty_rows_of_many_ctas;
            properties: spmm_agrees, sddmm_agrees, matmul_agrees;
        }
    };
    (@cases $open:expr, $scale:expr; $($module:ident: $($case:ident),+;)+) => {
        $(mod $module {
            #[allow(unused_imports)]
            use super::*;
            $(#[test]
            fn $case() {
                if let Some(backend) = ($open)() {
                    $crate::$module::$case(&*backend, $scale);
                }
            })+
        })+
    };
}
