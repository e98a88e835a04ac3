"""What several reports are made of: groups of findings, the tree, the picture, text that XML can hold."""
