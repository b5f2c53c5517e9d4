"""The paper's didactic studies and the certificate, beside the modules they show."""
