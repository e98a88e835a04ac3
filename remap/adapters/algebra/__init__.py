"""What becomes of a low-rank change when its weight is cut, joined, permuted: expressions over factors.

    follow     an expression over base weights -> the change of its value, as terms
    assemble   terms -> the factors A and B of one module
    prune      factors -> those without the ranks that are zero
    vectors    what belongs to the rows or columns of a weight (DoRA's lengths, IA3) along its expression
    substitute whole tensors (biases, saved modules) in the place of the base's

Nothing here knows names or methods. Factors are expressions themselves; only ``prune`` computes them.
"""
