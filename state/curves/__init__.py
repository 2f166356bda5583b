"""Space-filling curves: boxes as sets of ranges of whole numbers.

hilbert     the Hilbert curve in any number of dimensions, and the ranges of a box on it
zcurve      the Z curve over points in twice as many dimensions, for approximate covering
cells       the grid of cells that a space is rounded to before a curve runs through it
blocks      sorted arrays in blocks, so that an insertion moves little
ranges      counted ranges: how many ask for each stretch of the curve
rangeindex  who asks for which range
"""
