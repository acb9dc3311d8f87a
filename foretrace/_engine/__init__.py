"""The gradient of a network: carry in; loss, gradient and carry out."""
