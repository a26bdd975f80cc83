"""Planning: which models fit where, in which order they run and how long it takes. Pure: nothing here knows Ray."""
