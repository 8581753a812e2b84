"""What models are trained to do: data, loss and tests."""
