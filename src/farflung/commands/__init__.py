"""What each command of `farflung` does: its options in, work done by the library, words and bars out."""
