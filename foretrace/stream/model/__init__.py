"""The model of a stream: units, features, the mixture of the experts, intervals and scores."""
