"""One layer through time: the linear scan, a chunk under a rule, the sensitivity it carries on."""
