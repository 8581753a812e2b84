"""What a training step is made of: recipe, passes, buffers, local steps, and the arena of gradients."""
