"""What can happen to goldens, played in directories of their own: nothing may be lost, and each says one clear line."""
