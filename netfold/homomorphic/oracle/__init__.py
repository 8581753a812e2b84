"""What is right, whatever a codec does: true sums, and promises compared with what came out."""
