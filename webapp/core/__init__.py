"""What every page needs: the frame, number formats, navigation entries, health and error pages."""
