"""An adapter onto a base.

fitting  the base under the names that the adapter was made for
shapes   do the sizes agree?
graft    all of it
"""
