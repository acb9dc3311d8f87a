"""The gradient of a network: a carry goes in; loss, gradient and the next carry come out."""
