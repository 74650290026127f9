"""Models that define torch modules, one file each; importing one imports torch, so they are imported when built."""
