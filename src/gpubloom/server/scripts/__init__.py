"""What a person's script needs, and conversion from and to notebooks; read by a confined process."""
