"""What a real dtm server answered, asked again of ours: the recorded requests replayed, every difference named."""
