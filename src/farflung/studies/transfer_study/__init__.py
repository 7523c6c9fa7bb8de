"""What a diverse team is worth when rewards come: many goals, against other ways to begin, on one page."""
