"""What lies in the file storage against what the rows say: orphans, and rows whose files are gone."""
