"""Geometry: boxes in the integer space of keys, and exact questions about unions of them.

    boxes       a box, and sets of boxes as arrays        cuts        the tree of cuts that negative space stands on
    cover       does a union of boxes contain a box?      negative    what a union leaves uncovered, exactly
    boxindex    which boxes hold a point, or meet a box?  attributed  the same approximately, with owners
    boxrows     its form for few boxes and new ones       boxtiles    its form for many
    dominance   which boxes contain a box, as points in twice as many dimensions

Everything here is about arrays of int64. Nothing here knows what a subscription is.
"""
